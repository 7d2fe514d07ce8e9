"""What a class asks of the cluster: resources, claims, nodes, queues, volumes."""
