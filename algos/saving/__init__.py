"""What training goes on from, as folders of parts."""
