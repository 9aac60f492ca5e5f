"""The door for clients of every protocol: sockets, TLS, logins, heart-beats, and bounds on what strangers may cost."""
