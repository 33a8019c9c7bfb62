"""Numbers and pictures for people."""

from .paths import draw_paths as draw_paths
