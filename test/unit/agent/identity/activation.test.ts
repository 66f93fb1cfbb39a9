import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { z } from "zod";
import { askForLicense } from "../../../../src/agent/identity/activation.ts";
import { identityFiles } from "../../../../src/agent/identity/identity.ts";
import { register } from "../../../../src/agent/identity/registration.ts";
import { hostFiles } from "../../../../src/host/files/files.ts";
import type { HttpRequest } from "../../../../src/host/net/http-client.ts";
import type { ActivationRequest } from "../../../../src/protocol/channel/activation.ts";
import { signJws } from "../../../../src/protocol/channel/jws.ts";
import { runController } from "../../../support/control-plane/running-controller.ts";
import { ISS, nodeIdentity, signingKey, UID } from "../../../support/control-plane/signing.ts";
import { tempDir } from "../../../support/temp-dir.ts";

const signal = new AbortController().signal;
const Text = z.record(z.string(), z.unknown());

/** A machine without an identity and with a fake clock; `answer` replaces the dialled control plane. */
function machine(answer?: (request: HttpRequest) => Promise<unknown>) {
  const directory = tempDir();
  mkdirSync(join(directory, "s/identity"), { recursive: true });
  const files = identityFiles(hostFiles(directory), "/s");
  const clock = { at: 1000, now: () => clock.at };
  const http = {
    async send(request: HttpRequest) {
      const rest = { contentType: "application/json", retryAfterMs: undefined };
      if (answer !== undefined) return { status: 200, body: JSON.stringify(await answer(request)), ...rest };
      const { method, body } = request;
      const response = await fetch(request.url, { method, ...(body === undefined ? {} : { body }) });
      return { status: response.status, body: await response.text(), ...rest };
    },
  };
  const device = () => Promise.resolve({ vendor: "Test", model: "Box", mac: "02:00:00:00:00:01" });
  const deps = { files, http, device, clock };
  return { deps, clock, ask: (request: ActivationRequest) => askForLicense(request, deps, signal) };
}

async function operator(url: string, key: string, path: string, json: unknown) {
  const headers = { authorization: key, "content-type": "application/json" };
  const response = await fetch(`${url}${path}`, { method: "POST", headers, body: JSON.stringify(json) });
  return Text.parse(await response.json());
}

test("a machine shows a code, also with a clock that was set back, and registers once an operator has entered it", async () => {
  const { url, adminKeyPath, nodes } = await runController();
  const { ask, deps, clock } = machine();
  const first = await ask({ url, pins: [] });
  if (first.state !== "pending") throw new Error("approved without anybody");
  clock.at = 5;
  expect(await ask({ url, pins: [] })).toMatchObject({ state: "pending", code: first.code });
  const key = readFileSync(adminKeyPath, "utf8").trim();
  const seen = await operator(url, key, "/v2/activation/lookup", { code: first.code });
  expect(seen["key"]).toBe(first.key);
  await operator(url, key, "/v2/activation", { code: first.code, name: "edge", key: first.key });
  const step = await ask({ url, pins: [] });
  if (step.state !== "approved") throw new Error("not approved");
  expect((await register(step.license, deps, signal)).node.name).toBe("edge");
  expect((await nodes.byFqdn("edge.holdfast.example"))?.type).toBe("Node");
  await expect(ask({ url, pins: [] })).rejects.toMatchObject({ code: "already-registered" });
});

test("a machine with an agent token registers as the agent of that token", async () => {
  const { url, adminKeyPath } = await runController();
  const key = readFileSync(adminKeyPath, "utf8").trim();
  const { token } = await operator(url, key, "/v2/agent-token", { name: "laptop" });
  const { ask, deps } = machine();
  const step = await ask({ token: `${String(token)}\n` });
  if (step.state !== "approved") throw new Error("not approved");
  expect((await register(step.license, deps, signal)).node).toMatchObject({ name: "laptop", type: "Agent" });
  await expect(machine().ask({ token: String(token).slice(0, -9) })).rejects.toMatchObject({ code: "bad-token" });
});

test.each([
  ["of another control plane", { iss: "https://other.example" }],
  ["bound to another key", { cnf: { jkt: "A".repeat(43) } }],
  ["bound to none", {}],
])("a license %s is refused", async (_, change) => {
  const signer = await signingKey();
  const { name, domain, org, type } = nodeIdentity;
  const claims = { iss: ISS, jti: UID, name, domain, org, type, iat: 1, exp: 2, root: signer.kid, spki: [], ...change };
  const license = await signJws("holdfast-license+jwt", claims, signer);
  const { ask } = machine(() => Promise.resolve({ state: "approved", license }));
  await expect(ask({ url: ISS, pins: [] })).rejects.toMatchObject({ code: "bad-license" });
});
