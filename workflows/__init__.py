"""Deterministic orchestration, one file for each workflow. Nothing here touches an outside system."""
