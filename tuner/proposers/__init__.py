"""Who proposes the next candidate: fixed start points from rules, and Optuna's sampler behind them."""
