"""What is shown to people: optimized networks, explanations, estimates, times, and the page that draws them."""
