import { expect, test } from "vitest";
import { ClusterDocument, NodeDocument } from "../../../../../src/protocol/documents/documents.ts";
import { clusterDocument, judgeHave, nodeDocument } from "../../../../../src/controller/channel/documents/versions.ts";

const NODE = {
  uid: "0b6a1dd2-0b5e-4a65-8c23-7b8a52f4d3a1",
  name: "edge",
  fqdn: "edge.net.example",
  domain: "net.example",
  org: "0b6a1dd2-0b5e-4a65-8c23-7b8a52f4d3a2",
  type: "Node",
  state: "ACTIVE",
  lifecycleState: undefined,
  cluster: undefined,
  tags: { b: "2", a: "1" },
  config: { vpn: { x: 1 }, connectors: {} },
} as const;

test("documents are what their schemas say, and equal content is equal text", () => {
  const settings = { speedTestUrl: "https://cp.example/x" };
  const body = nodeDocument(NODE, settings);
  expect(NodeDocument.parse(body)).toEqual(body);
  expect(Object.hasOwn(body, "cluster")).toBe(false);
  const reordered = { ...NODE, tags: { a: "1", b: "2" }, config: { connectors: {}, vpn: { x: 1 } } };
  expect(JSON.stringify(nodeDocument(reordered, settings))).toBe(JSON.stringify(body));
  const cluster = { fqdn: "c.net.example", name: "c", domain: "net.example", createdAt: 1, tags: {}, config: {} };
  const members = [NODE.uid];
  expect(ClusterDocument.parse(clusterDocument({ ...cluster, members }, {}))).toMatchObject({ members });
});

test.each([
  [5, 0, "fine"],
  [5, 5, "fine"],
  [5, 6, "restored"],
  [5, 5 + 2 ** 32, "restored"],
  [5, 6 + 2 ** 32, "refused"],
  [Number.MAX_SAFE_INTEGER - 5, Number.MAX_SAFE_INTEGER, "refused"],
] as const)("ours %d, held %d: %s", (ours, have, verdict) => {
  expect(judgeHave(ours, have)).toBe(verdict);
});
