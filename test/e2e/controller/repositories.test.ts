import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { decodeJwt } from "jose";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { pino } from "pino";
import { startController, type Controller } from "../../../src/controller/controller.ts";
import { peekClaims } from "../../../src/protocol/channel/jws.ts";
import { freePort } from "../../support/machine/programs.ts";
import { makeIdentity, register, TestNode } from "../../support/control-plane/node-client.ts";
import { startRegistry, type TestRegistry } from "../../support/containers/registry.ts";

const NAMESPACE = "holdfast.example";
const MANIFEST = "application/vnd.docker.distribution.manifest.v2+json";

let dir = "";
let registry: TestRegistry;
let controller: Controller;
let key = "";

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), "holdfast-registry-"));
  const port = await freePort();
  const log = pino({ level: "silent" });
  controller = await startController({
    listen: "127.0.0.1:0",
    dataDir: join(dir, "controller"),
    registryUrl: `http://127.0.0.1:${port}`,
    registryHost: "registry.example:5000",
    log,
  });
  key = readFileSync(controller.adminKeyPath, "utf8").trim();
  registry = await startRegistry(join(dir, "registry"), {
    port,
    env: {
      REGISTRY_AUTH_TOKEN_REALM: `${controller.url}/registry/token`,
      REGISTRY_AUTH_TOKEN_SERVICE: "holdfast-registry",
      REGISTRY_AUTH_TOKEN_ISSUER: "holdfast",
      REGISTRY_AUTH_TOKEN_ROOTCERTBUNDLE: join(dir, "controller/registry/cert.pem"),
    },
  });
});

afterAll(async () => {
  await registry.stop();
  await controller.close();
  rmSync(dir, { recursive: true, force: true });
});

async function api(method: string, path: string, body?: unknown) {
  const headers = { authorization: key, "content-type": "application/json" };
  const json = body === undefined ? {} : { body: JSON.stringify(body) };
  const response = await fetch(controller.url + path, { method, headers, ...json });
  const answer: unknown = await response.json();
  return { status: response.status, body: answer };
}

/** Requests a token as a container engine does. */
async function tokenFor(scope: string, username: string, password: string) {
  const query = new URLSearchParams({ service: "holdfast-registry", scope, account: username });
  const authorization = `Basic ${Buffer.from(`${username}:${password}`).toString("base64")}`;
  const response = await fetch(`${controller.url}/registry/token?${query.toString()}`, { headers: { authorization } });
  const body = (await response.json()) as { token?: string };
  return { status: response.status, token: body.token ?? "" };
}

async function toRegistry(method: string, path: string, token: string, body?: string, type = MANIFEST) {
  const headers = { authorization: `Bearer ${token}`, "content-type": type, accept: MANIFEST };
  return fetch(new URL(path, `http://${registry.host}`), { method, headers, ...(body === undefined ? {} : { body }) });
}

const digestOf = (text: string): string => `sha256:${createHash("sha256").update(text).digest("hex")}`;

/** Pushes a small image with the admin's API key. */
async function push(repository: string, tags: readonly string[], content: string): Promise<void> {
  const { token } = await tokenFor(`repository:${repository}:pull,push`, "admin", key);
  for (const blob of [content, "{}"]) {
    const begun = await toRegistry("POST", `/v2/${repository}/blobs/uploads/`, token);
    const at = new URL(begun.headers.get("location") ?? "", `http://${registry.host}`);
    at.searchParams.set("digest", digestOf(blob));
    const put = await toRegistry("PUT", at.pathname + at.search, token, blob, "application/octet-stream");
    expect(put.status).toBe(201);
  }
  const layer = {
    mediaType: "application/vnd.docker.image.rootfs.diff.tar.gzip",
    size: content.length,
    digest: digestOf(content),
  };
  const config = { mediaType: "application/vnd.docker.container.image.v1+json", size: 2, digest: digestOf("{}") };
  const manifest = JSON.stringify({ schemaVersion: 2, mediaType: MANIFEST, config, layers: [layer] });
  for (const tag of tags) {
    const put = await toRegistry("PUT", `/v2/${repository}/manifests/${tag}`, token, manifest);
    expect(put.status).toBe(201);
  }
}

async function registered(name: string): Promise<TestNode> {
  const license = await controller.licenses.issue({ name, type: "Node", user: "test" });
  const identity = await makeIdentity();
  expect((await register(controller.url, license, identity)).status).toBe(200);
  return new TestNode(controller.url, peekClaims("holdfast-license+jwt", license).jti, identity);
}

describe("repositories", () => {
  it("are listed with their tags, digests and sizes", async () => {
    await push(`${NAMESPACE}/team/api`, ["1.0", "latest"], "one");
    await push(`${NAMESPACE}/web`, ["2"], "two!");
    expect(await api("GET", "/repositories")).toEqual({
      status: 200,
      body: [{ name: `${NAMESPACE}/team/api` }, { name: `${NAMESPACE}/web` }],
    });
    const tags = await api("GET", `/repositories/${encodeURIComponent(`${NAMESPACE}/team/api`)}`);
    expect(tags.status).toBe(200);
    expect(tags.body).toMatchObject([
      { name: "1.0", uri: `registry.example:5000/${NAMESPACE}/team/api:1.0`, size: 3 },
      { name: "latest", uri: `registry.example:5000/${NAMESPACE}/team/api:latest`, size: 3 },
    ]);
  });

  it("lose one tag and keep another of the same image", async () => {
    const name = `${NAMESPACE}/twins`;
    await push(name, ["a", "b"], "same");
    const path = `/repositories/${encodeURIComponent(name)}`;
    expect(await api("DELETE", `${path}/a`)).toEqual({ status: 200, body: {} });
    expect((await api("GET", path)).body).toMatchObject([{ name: "b" }]);
    expect((await api("DELETE", `${path}/a`)).status).toBe(404);
    expect(await api("DELETE", `${path}/b`)).toEqual({ status: 200, body: {} });
    expect((await api("GET", path)).status).toBe(404);
    expect((await api("GET", "/repositories")).body).not.toContainEqual({ name });
  });

  it("are removed completely", async () => {
    const name = `${NAMESPACE}/gone`;
    await push(name, ["1", "2"], "x");
    const path = `/repositories/${encodeURIComponent(name)}`;
    expect(await api("DELETE", path)).toEqual({ status: 200, body: {} });
    expect((await api("GET", path)).status).toBe(404);
    expect((await api("DELETE", path)).status).toBe(404);
  });

  it("are not found by impossible names", async () => {
    for (const name of ["Upper", "a//b", "../x", "a:b", "a/"]) {
      expect((await api("GET", `/repositories/${encodeURIComponent(name)}`)).status).toBe(404);
    }
    expect((await api("DELETE", `/repositories/web/${encodeURIComponent("no tag")}`)).status).toBe(404);
  });
});

describe("the credential of a node", () => {
  it("pulls from the repository of its container, and nothing else", async () => {
    await push(`${NAMESPACE}/mine`, ["1"], "mine");
    await push(`${NAMESPACE}/other`, ["1"], "other");
    const node = await registered("puller");
    const container = { id: "3f2b8f0e-6a7c-4c0c-9a1e-2f3d5b7a9c11", name: "mine", execType: "service", enabled: true };
    const exec = { commands: [{ ...container, image: { repository: `${NAMESPACE}/mine`, tag: "1" } }] };
    await controller.config.setSection(node.uid, "exec", "test", () => ({ body: exec }));
    const session = await node.connect();
    const { username, password, expiresAt } = await session.peer.request("registry.token", {
      repository: `${NAMESPACE}/mine`,
    });
    expect(expiresAt).toBeGreaterThan(Date.now());
    await expect(session.peer.request("registry.token", { repository: `${NAMESPACE}/other` })).rejects.toMatchObject({
      code: "not-found",
    });
    const manifest = `/v2/${NAMESPACE}/mine/manifests/1`;
    const { token } = await tokenFor(`repository:${NAMESPACE}/mine:pull,push`, username, password);
    expect((await toRegistry("GET", manifest, token)).status).toBe(200);
    expect((await toRegistry("PUT", manifest, token, "{}")).status).toBe(401);
    const other = await tokenFor(`repository:${NAMESPACE}/other:pull`, username, password);
    expect((await toRegistry("GET", `/v2/${NAMESPACE}/other/manifests/1`, other.token)).status).toBe(401);
    expect((await tokenFor(`repository:${NAMESPACE}/mine:pull`, "somebody", password)).status).toBe(401);
    await controller.nodes.delete(node.uid, "test");
    expect((await tokenFor(`repository:${NAMESPACE}/mine:pull`, username, password)).status).toBe(401);
  });

  it("works as well if the registry's host is part of the image's name, or its capitals differ", async () => {
    const node = await registered("spelt");
    const session = await node.connect();
    await push(`${NAMESPACE}/spelt`, ["1"], "spelt");
    for (const repository of [`registry.example:5000/${NAMESPACE}/spelt`, `${NAMESPACE.toUpperCase()}/spelt`]) {
      const id = "3f2b8f0e-6a7c-4c0c-9a1e-2f3d5b7a9c12";
      const container = { id, name: "spelt", execType: "service", image: { repository, tag: "1" } };
      await controller.config.setSection(node.uid, "exec", "test", () => ({ body: { commands: [container] } }));
      const { username, password } = await session.peer.request("registry.token", { repository });
      const { token } = await tokenFor(`repository:${NAMESPACE}/spelt:pull`, username, password);
      expect((await toRegistry("GET", `/v2/${NAMESPACE}/spelt/manifests/1`, token)).status).toBe(200);
    }
  });

  it("is in no signed document, which has only the registry's URL", async () => {
    const node = await registered("told");
    const session = await node.connect();
    const jws = (await session.fetchDocument(controller.url, "node")) ?? "";
    expect(decodeJwt(jws)["body"]).toMatchObject({ registry: { host: "registry.example:5000", namespace: NAMESPACE } });
  });
});

describe("the token server", () => {
  it("requires valid credentials", async () => {
    const url = `${controller.url}/registry/token?service=holdfast-registry`;
    expect((await fetch(url)).status).toBe(401);
    for (const authorization of [
      "Basic !",
      `Basic ${btoa("nocolon")}`,
      `Basic ${btoa("a:wrong")}`,
      `Basic ${btoa("a:\u0001")}`,
    ]) {
      expect((await fetch(url, { headers: { authorization } })).status).toBe(401);
    }
  });

  it("refuses another service, and answers a login without a scope", async () => {
    const authorization = `Basic ${btoa(`admin:${key}`)}`;
    const other = await fetch(`${controller.url}/registry/token?service=other`, { headers: { authorization } });
    expect(other.status).toBe(422);
    const login = await fetch(`${controller.url}/registry/token?service=holdfast-registry`, {
      headers: { authorization },
    });
    expect(login.status).toBe(200);
  });
});

describe("without a registry", () => {
  it("reports it", async () => {
    const own = await startController({
      listen: "127.0.0.1:0",
      dataDir: join(dir, "bare"),
      log: pino({ level: "silent" }),
    });
    try {
      const authorization = readFileSync(own.adminKeyPath, "utf8").trim();
      const answer = await fetch(`${own.url}/repositories`, { headers: { authorization } });
      expect(answer.status).toBe(422);
      expect(await answer.json()).toEqual([expect.stringContaining("--registry")]);
    } finally {
      await own.close();
    }
  });

  it("reports one that does not answer", async () => {
    const port = await freePort();
    const log = pino({ level: "silent" });
    const own = await startController({
      listen: "127.0.0.1:0",
      dataDir: join(dir, "lonely"),
      registryUrl: `http://127.0.0.1:${port}`,
      log,
    });
    try {
      const authorization = readFileSync(own.adminKeyPath, "utf8").trim();
      const answer = await fetch(`${own.url}/repositories`, { headers: { authorization } });
      expect(answer.status).toBe(502);
      expect(await answer.json()).toMatchObject({ code: "registry-unreachable" });
    } finally {
      await own.close();
    }
  });
});
