"""From tables to claims and figures: reads CSV files only, so a laptop rebuilds them all."""
