import { beforeEach, expect, it } from "vitest";
import { SessionError } from "../../../../src/errors.ts";
import { replyParts } from "../../../../src/protocol/channel/reply-parts.ts";
import { ApiBench } from "../../../support/control-plane/api-bench.ts";

let bench: ApiBench;
let uid: string;

beforeEach(async () => {
  bench = await ApiBench.create();
  uid = (await bench.fleet.add({ name: "one" })).uid;
});

const CONTENT = Buffer.alloc(200_000, "an archive ");
const answer = {
  name: "holdfast-one-20260301T120000Z.tar.gz",
  bytes: CONTENT.length,
  sha256: "0".repeat(64),
  missing: [],
  archive: CONTENT.toString("base64"),
};
const fetch = (query = "", key?: string) =>
  bench.call("POST", `/node/${uid}/bundle${query}`, key === undefined ? {} : { key });

/** Has the node answer in parts, as it does what no one message holds. */
function answering(body: object): void {
  const text = JSON.stringify(body);
  bench.fleet.script = (_, { onProgress }) => {
    let seq = 0;
    for (const data of replyParts(text)) onProgress?.({ seq: (seq += 1), kind: "json", data });
    return Promise.resolve({ replyBytes: Buffer.byteLength(text) });
  };
}

it("hands on as a file what the node gives in parts", async () => {
  answering(answer);
  const { status, headers, text } = await fetch("?maxBytes=100000");
  expect(status).toBe(200);
  expect(headers.get("content-type")).toBe("application/gzip");
  expect(headers.get("content-disposition")).toBe(`attachment; filename="${answer.name}"`);
  expect(text).toBe(CONTENT.toString());
  expect(bench.fleet.triggered).toMatchObject([
    { uid, request: { event: "node-push-logs", body: { inline: true, maxBytes: 100_000 }, deadlineMs: 180_000 } },
  ]);
});

it.each([
  { ...answer, archive: undefined },
  { ...answer, name: 'holdfast-"; x.tar.gz' },
  { ...answer, name: "holdfast-a\r\nset-cookie: a.tar.gz" },
  { ...answer, archive: "not base64!" },
  {},
])("a faulty node is told from a faulty call: %#", async (body) => {
  answering(body);
  expect(await fetch()).toMatchObject({ status: 502, json: { code: "invalid-reply" } });
});

it("says why there is none", async () => {
  bench.fleet.script = () => Promise.reject(new SessionError("busy", "another bundle is just being made"));
  expect(await fetch()).toMatchObject({ status: 422, json: ["another bundle is just being made"] });
  expect((await fetch("?maxBytes=1")).status).toBeGreaterThanOrEqual(400);
  uid = (await bench.fleet.add({ name: "two", isOnline: false })).uid;
  expect(await fetch()).toMatchObject({ status: 503, json: { code: "offline" } });
});

it("a place in the data store takes the leave to change that", async () => {
  const push = (key: string, json: object) => bench.call("POST", `/node/${uid}/trigger/node-push-logs`, { key, json });
  const own = await bench.keyFor(["nodes::service:node-push-logs"]);
  expect((await push(own, {})).status).toBe(200);
  expect((await push(own, { file: "a.tar.gz" })).status).toBe(403);
  const both = await bench.keyFor(["nodes::service:node-push-logs", "nodes::service:datastore-manager"]);
  expect((await push(both, { file: "a.tar.gz" })).status).toBe(200);
});
