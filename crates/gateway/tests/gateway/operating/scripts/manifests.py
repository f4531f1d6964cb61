"""Checks manifests: each FILE against its public schema, and against what the project promises."""

import importlib.util
import json
import pathlib
import sys

import jsonschema_rs
import yaml

KUBERNETES = "v1.33.0-local-strict"


def package(name):
    """The folder of a package that is here for its data only."""
    return pathlib.Path(importlib.util.find_spec(name).origin).parent


def documents(path):
    with open(path) as file:
        return [document for document in yaml.safe_load_all(file) if document]


def kubernetes(document):
    """The schema of the document's kind, strict: members that do not exist are refused."""
    folder = package("kubernetes_validate") / "kubernetes-json-schema" / KUBERNETES
    definitions = json.loads((folder / "_definitions.json").read_text())
    group, _, version = document["apiVersion"].rpartition("/")
    name = "-".join(part for part in (document["kind"].lower(), group.split(".")[0], version) if part)
    schema = json.loads((folder / f"{name}.json").read_text().replace("/api/_definitions.json#", "#"))
    schema["$defs"] = definitions["$defs"]
    schema.pop("$id", None)
    jsonschema_rs.validate(schema, document)


def compose(path, document):
    folder = package("check_jsonschema") / "builtin_schemas" / "vendor"
    jsonschema_rs.validate(json.loads((folder / "compose-spec.json").read_text()), document)
    gateway = document["services"]["semel"]
    assert gateway["read_only"] and gateway["cap_drop"] == ["ALL"], path
    assert gateway["stop_grace_period"] == "45s", "longer than the drain"
    assert "ports" not in document["services"]["payments"], "the service is reached past the gateway"
    assert gateway["volumes"] == ["store:/var/lib/semel"] and "store" in document["volumes"], path
    context = pathlib.Path(path).parent / gateway["build"]["context"]
    assert (context / gateway["build"]["dockerfile"]).is_file(), path
    assert (pathlib.Path(path).parent / document["configs"]["semel"]["file"]).is_file(), path


def pod_monitor(path, document):
    """Its schema comes with the operator. What it selects is in the manifests beside it."""
    (endpoint,) = document["spec"]["podMetricsEndpoints"]
    assert endpoint["path"] == "/metrics" and endpoint["authorization"]["type"] == "Bearer", path
    for name in ("gateway.yml", "sidecar.yml"):
        for other in documents(pathlib.Path(path).with_name(name)):
            if other["kind"] == "StatefulSet":
                template = other["spec"]["template"]
                labels = template["metadata"]["labels"].items()
                assert document["spec"]["selector"]["matchLabels"].items() <= labels, name
                ports = [port["name"] for container in template["spec"]["containers"] for port in container.get("ports", [])]
                assert endpoint["port"] in ports, name


def workload(path, document):
    spec = document["spec"]["template"]["spec"]
    gateway = next(container for container in spec["containers"] if container["name"] == "semel")
    assert document["spec"]["replicas"] == 1, "a second pod would have a second store"
    assert spec["terminationGracePeriodSeconds"] > 30, "longer than the drain"
    assert gateway["livenessProbe"]["httpGet"]["path"] == "/healthz", path
    assert gateway["readinessProbe"]["httpGet"]["path"] == "/readyz", path
    startup = gateway["startupProbe"]
    seconds = startup["periodSeconds"] * startup["failureThreshold"]
    assert seconds > 600, "longer than the gateway waits for the server of its store"
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
            labels = other["spec"]["template"]["metadata"]["labels"]
            assert document["spec"]["selector"].items() <= labels.items()
            containers = other["spec"]["template"]["spec"]["containers"]
            ports = {port["name"]: port for container in containers for port in container.get("ports", [])}
            assert ports[target]["containerPort"] == 8080, "clients reach the gateway"


def shape(path):
    found = documents(path)
    if path.endswith("envoy.yml"):
        resources = found[0]["static_resources"]
        assert resources["clusters"][0]["name"] == "semel" and resources["listeners"], path
    elif path.endswith("compose.yml"):
        compose(path, found[0])
    elif path.endswith("podmonitor.yml"):
        pod_monitor(path, found[0])
    else:
        assert sorted(document["kind"] for document in found) == ["ConfigMap", "Service", "StatefulSet"], path
        for document in found:
            kubernetes(document)
            if document["kind"] == "StatefulSet":
                workload(path, document)
            if document["kind"] == "Service":
                service(document, found)


if __name__ == "__main__":
    for given in sys.argv[1:]:
        shape(given)
    print("done")
