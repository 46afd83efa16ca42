"""The values that programs compute with, their bounds, their faults, and their text and table forms."""
