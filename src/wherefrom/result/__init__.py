"""What comes out: explanations, comparisons, generations. Numpy arrays and plain values, no model behind them."""
