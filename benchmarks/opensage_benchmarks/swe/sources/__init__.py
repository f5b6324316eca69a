"""Formats of tasks, one class each, found by the entry points of the group `opensage.task_sources`."""
