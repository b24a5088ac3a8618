"""The backend-independent rewrites of the optimizer, one module for each kind."""
