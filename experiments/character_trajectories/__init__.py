"""Section 4.1 and appendix D.2 of the paper: letters from pen strokes, with 30, 50 or 70 % of observations dropped."""
