import { expect, test } from "vitest";
import { networkTargets } from "../../../../src/agent/network/targets.ts";
import { NetworkTargets } from "../../../../src/protocol/overlay/network-targets.ts";
import type { OverlayMesh } from "../../../../src/protocol/overlay/mesh.ts";
import { EDGE_1, GATEWAY_1, GATEWAY_2 } from "../../../support/overlay/scripted-tunnels.ts";

const KEY = "k".repeat(43);
const mesh: OverlayMesh = {
  self: EDGE_1,
  peers: [{ uid: GATEWAY_1, fqdn: "gw-1.example.net", key: KEY }],
  paths: [
    { gateway: GATEWAY_1, id: "wan2", host: "203.0.113.1", port: 8443, local: "192.0.2.7", isDefault: false },
    { gateway: GATEWAY_2, id: "", host: "198.51.100.2", port: 443, isDefault: true },
  ],
  grants: [],
  routes: [],
};

test("the targets are the proxy and every path with the key that proves its gateway", () => {
  const proxies = { https: new URL("http://u:p@proxy.example.net:3128"), noProxy: ["example.org"] };
  const hosts = { "cp.example.net": ["192.0.2.9"] };
  expect(NetworkTargets.parse(networkTargets(undefined, { proxies, hosts }, mesh))).toEqual({
    schema: 1,
    proxy: { url: "http://u:p@proxy.example.net:3128/", noProxy: ["example.org"] },
    hosts: { "cp.example.net": ["192.0.2.9"] },
    paths: [
      { ...mesh.paths[0], name: "gw-1.example.net", key: KEY },
      { ...mesh.paths[1], name: GATEWAY_2 },
    ],
  });
  expect(networkTargets(undefined, { proxies: { noProxy: [] } }, undefined)).toEqual({ schema: 1, paths: [] });
});
