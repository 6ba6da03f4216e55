"""Ray itself: a session to work in, clusters that are brought up, and jobs that are sent to them."""
