"""From tables to claims and figures: reads CSV files only, so a laptop without a GPU rebuilds them all."""
