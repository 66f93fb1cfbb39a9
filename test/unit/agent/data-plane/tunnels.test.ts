import { expect, test } from "vitest";
import { agentTunnels, type TunnelSources } from "../../../../src/agent/data-plane/tunnels.ts";
import { HostError, SessionError } from "../../../../src/errors.ts";
import { NOTHING } from "../../../../src/host/overlay/table.ts";
import { domainReader } from "../../../../src/protocol/documents/domain-view.ts";
import { identity } from "../../../support/fake-local-provider.ts";
import { EDGE_2, GATEWAY_1, someMesh } from "../../../support/overlay/scripted-tunnels.ts";

const KEY = "k".repeat(43);
const peer = { uid: EDGE_2, name: "edge-2", fqdn: "edge-2.example.net", type: "Agent", key: KEY };
const domain = { fqdn: "example.net", peers: [peer, { uid: "bad" }], grants: [] };
type Asked = Partial<TunnelSources["overlay"]>;

function tunnels(overlay: Asked = {}, changes: Partial<TunnelSources> = {}) {
  const unasked = (): never => {
    throw new Error("not asked for");
  };
  return agentTunnels({
    registration: () => ({ node: identity }) as ReturnType<TunnelSources["registration"]>,
    documents: { current: { domain: { body: domain } } as unknown as TunnelSources["documents"]["current"] },
    domain: domainReader(),
    overlay: {
      status: () => ({ state: "up", since: 7 }),
      view: NOTHING,
      mesh: unasked,
      echo: unasked,
      perf: unasked,
      ...overlay,
    },
    graceMs: 20,
    ...changes,
  });
}

const { signal } = new AbortController();
const echo = { peer: EDGE_2, bytes: 64, timeoutMs: 10 };
const hanging = (limit: AbortSignal): Promise<never> =>
  new Promise((_, reject) => {
    limit.addEventListener("abort", () => reject(limit.reason as Error), { once: true });
  });

test("paths are those of the overlay's table", () => {
  const path = { gateway: GATEWAY_1, id: "lte", host: "203.0.113.9", port: 9443, isDefault: false };
  const mesh = { self: identity.uid, peers: [], paths: [path], grants: [], routes: [] };
  expect(tunnels({ view: { ...NOTHING, mesh } }).paths()).toEqual([path]);
  expect(tunnels().paths()).toEqual([]);
});

test("names come from the domain document, without its invalid items", () => {
  const nodes = tunnels().nodes();
  expect(nodes).toMatchObject({ self: { fqdn: "edge-1.example.net" }, domain: "example.net", isActive: true });
  expect([...(nodes?.peers.values() ?? [])].map(({ fqdn }) => fqdn)).toEqual(["edge-2.example.net"]);
  expect(tunnels({}, { registration: () => undefined }).nodes()).toBeUndefined();
});

test("there are no peers without a document, and no paths on an INACTIVE node", () => {
  const current = { node: { body: { state: "INACTIVE" } } } as unknown as TunnelSources["documents"]["current"];
  const nodes = tunnels({}, { documents: { current } }).nodes();
  expect(nodes).toMatchObject({ domain: "example.net", isActive: false });
  expect(nodes?.peers.size).toBe(0);
});

test("counts bytes since the start of the overlay", () => {
  expect(tunnels().countedSince()).toBe(7);
  expect(tunnels({ status: () => ({ state: "down", since: 7 }) }).countedSince()).toBeUndefined();
});

test("passes on the answer of the overlay, and the path", async () => {
  const answer = { rttMs: 1, gateway: GATEWAY_1, path: "" };
  const good = tunnels({ mesh: () => Promise.resolve(someMesh()), echo: () => Promise.resolve(answer) });
  expect(await good.mesh(signal)).toEqual(someMesh());
  expect(await good.echo(echo, signal)).toEqual(answer);
  for (const error of [new SessionError("not-connected", "gone"), new HostError("overlay-absent", "none")]) {
    await expect(tunnels({ echo: () => Promise.reject(error) }).echo(echo, signal)).rejects.toBe(error);
  }
});

test("reports an overlay that hangs or is too old by the platform's codes", async () => {
  const hung = tunnels({ mesh: hanging, echo: (_, limit) => hanging(limit) });
  await expect(hung.mesh(signal)).rejects.toMatchObject({ code: "timeout", message: "the overlay does not answer" });
  await expect(hung.echo(echo, signal)).rejects.toMatchObject({ code: "timeout" });
  const older = tunnels({ perf: () => Promise.reject(new HostError("overlay-older", "restart it")) });
  const upload = { peer: EDGE_2, bytes: 1, messageBytes: 1, windowBytes: 1024 };
  await expect(older.perf(upload, () => undefined, signal)).rejects.toMatchObject({
    code: "exec-failed",
    message: "the overlay failed: restart it",
  });
});

test("passes a cancellation on", async () => {
  const control = new AbortController();
  const requested = tunnels({ perf: (_, _onProgress, limit) => hanging(limit) }).perf(
    { peer: EDGE_2, bytes: 1, messageBytes: 1, windowBytes: 1024 },
    () => undefined,
    control.signal,
  );
  control.abort(new Error("cancelled by hand"));
  await expect(requested).rejects.toThrow("cancelled by hand");
});
