"""The device backend of the lab's training image: GPUs that answer from hardware.json."""
