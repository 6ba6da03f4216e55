"""What an experiment has come to so far, as its folders say: progress, status, scores, the best configurations."""
