"""Images, manifests and handlers for platforms; docs/deploy.md says what each is for. Not part of the wheel."""
