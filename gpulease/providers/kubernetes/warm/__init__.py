"""Pods that stand ready before anybody asks."""
