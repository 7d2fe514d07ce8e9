"""Reads GPUs: NVML and simulated devices behind one port."""
