"""The CUDA backend: precompiled kernels launched through the driver; not imported before a device, or what it shows, is needed."""
