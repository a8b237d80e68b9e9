"""The CUDA backend: precompiled kernels launched through the driver; nothing here is imported before a device is asked for."""
