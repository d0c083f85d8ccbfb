// Checks Kubernetes manifests against the API's schema: node .ci/manifests.js FILE..., with
// kubernetes-models and js-yaml installed. The validators of kubernetes-models ignore unknown fields.
// So a field that no validator has read is unknown, and is an error.
const fs = require("fs");
const { createRequire } = require("module");
const modules = createRequire(process.cwd() + "/");
const yaml = modules("js-yaml");

function watched(value, path, unread) {
  if (value === null || typeof value !== "object") return value;
  const inner = Array.isArray(value) ? [] : {};
  for (const key of Object.keys(value)) {
    unread.add(`${path}.${key}`);
    inner[key] = watched(value[key], `${path}.${key}`, unread);
  }
  return new Proxy(inner, {
    get(target, key) {
      unread.delete(`${path}.${String(key)}`);
      return target[key];
    },
  });
}

let failed = false;
for (const file of process.argv.slice(2)) {
  for (const manifest of yaml.loadAll(fs.readFileSync(file, "utf8"))) {
    const name = `${file}: ${manifest.kind} ${manifest.metadata.name}`;
    const unread = new Set();
    const { apiVersion, kind } = manifest;
    // rbac.authorization.k8s.io/v1: RbacV1
    const whole = apiVersion.includes("/") ? apiVersion : `core/${apiVersion}`;
    const group = whole.split("/").map((part) => part.split(".")[0]);
    const prefix = group.map((part) => part[0].toUpperCase() + part.slice(1)).join("");
    const { validate } = modules(`./node_modules/kubernetes-models/_schemas/IoK8sApi${prefix}${kind}.js`);
    const good = validate(watched(manifest, "", unread)) && unread.size === 0;
    failed ||= !good;
    const wrong = `${JSON.stringify(validate.errors)} unknown: ${[...unread].join(" ")}`;
    console.log(`${name}: ${good ? "ok" : wrong}`);
  }
}
process.exit(failed ? 1 : 0);
