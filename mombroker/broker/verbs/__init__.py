"""What operators may ask about destinations, a file for each noun. core/requests.py has the table of all verbs."""
