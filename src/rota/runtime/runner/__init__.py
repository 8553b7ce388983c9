"""The runner: one small, trusted process for each worker, which prepares what it works on and runs things in its box.

It is outside the box, on the host, as whoever runs Rota; what it runs is inside, by way of an agent that is no more
trusted than what it starts. It holds one stream to the gateway, as nobody but its own instance. It works on while the
server is away, and tells it everything when it is back.

Never: writes objects, keeps a credential longer than what it is for, leaves something of a holder to the next.
"""
