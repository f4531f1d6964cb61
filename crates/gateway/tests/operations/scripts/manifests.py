"""Looks at manifests: holds each FILE to what the project promises."""

import sys

import yaml


def documents(path):
    with open(path) as file:
        return [document for document in yaml.safe_load_all(file) if document]


def workload(path, document):
    spec = document["spec"]["template"]["spec"]
    gateway = next(container for container in spec["containers"] if container["name"] == "semel")
    assert document["spec"]["replicas"] == 1, "a second pod would have a second store"
    assert spec["terminationGracePeriodSeconds"] > 30, "longer than the drain"
    assert gateway["livenessProbe"]["httpGet"]["path"] == "/healthz", path
    assert gateway["readinessProbe"]["httpGet"]["path"] == "/readyz", path
    ports = {port["name"]: port["containerPort"] for port in gateway["ports"]}
    assert ports[gateway["readinessProbe"]["httpGet"]["port"]] == 9090, path
    security = {**spec.get("securityContext", {}), **gateway["securityContext"]}
    assert security["runAsNonRoot"] and security["readOnlyRootFilesystem"], path
    assert security["allowPrivilegeEscalation"] is False and security["capabilities"] == {"drop": ["ALL"]}, path
    mounts = {mount["name"] for mount in gateway["volumeMounts"]}
    volumes = {volume["name"] for volume in spec["volumes"]}
    claims = {claim["metadata"]["name"] for claim in document["spec"]["volumeClaimTemplates"]}
    assert mounts == volumes | claims == {"store", "config"}, path


def service(document, all_documents):
    target = document["spec"]["ports"][0]["targetPort"]
    for other in all_documents:
        if other["kind"] == "StatefulSet":
            assert other["spec"]["template"]["metadata"]["labels"] == document["spec"]["selector"]
            containers = other["spec"]["template"]["spec"]["containers"]
            ports = {port["name"]: port for container in containers for port in container.get("ports", [])}
            assert ports[target]["containerPort"] == 8080, "clients reach the gateway"


def shape(path):
    found = documents(path)
    if path.endswith("envoy.yml"):
        resources = found[0]["static_resources"]
        assert resources["clusters"][0]["name"] == "semel" and resources["listeners"], path
        return
    assert sorted(document["kind"] for document in found) == ["ConfigMap", "Service", "StatefulSet"], path
    for document in found:
        assert document["apiVersion"] and document["metadata"]["name"], path
        if document["kind"] == "StatefulSet":
            workload(path, document)
        if document["kind"] == "Service":
            service(document, found)


if __name__ == "__main__":
    for given in sys.argv[1:]:
        shape(given)
    print("done")
