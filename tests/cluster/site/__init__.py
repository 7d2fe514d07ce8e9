"""A whole site on the test cluster: a real hub, its proxy and the lease service, under the shipped
accounts and admission policies.  Hub, proxy and service are processes inside the cluster's network,
so that a test can kill each; notebook servers and lease pods are pods.
"""
