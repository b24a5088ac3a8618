"""The results that users see: optimized networks, explanations, estimates, times, and the page that draws them."""
