import fc from "fast-check";
import { expect, test } from "vitest";
import { domainReader, readDomain } from "../../../../src/protocol/documents/domain-view.ts";
import { Issue } from "../../../../src/protocol/documents/reconcile.ts";
import { JsonObject } from "../../../../src/protocol/values/values.ts";
import { aPeer, uidOf } from "../../../support/overlay/mesh.ts";

const document = (peers: JsonObject[], grants: JsonObject[] = []) => ({ fqdn: "example.org", peers, grants });

test("finds a peer by name, FQDN and uid, exactly as written", () => {
  const view = readDomain(document([aPeer(2, "gw1"), aPeer(3, "branch")]));
  for (const name of ["branch", "branch.example.org", uidOf(3)]) expect(view.find(name)?.uid).toBe(uidOf(3));
  for (const name of ["Branch", "BRANCH", "branch.Example.org"]) expect(view.find(name), name).toBeUndefined();
  expect(view.find("branch.example")).toBeUndefined();
  expect([...view.peers.keys()]).toEqual([uidOf(2), uidOf(3)]);
});

test("reports invalid items by their path, and uses the others", () => {
  const twin = { ...aPeer(2, "gw9"), key: aPeer(9, "gw9").key };
  const view = readDomain(
    document(
      [aPeer(2, "gw1"), {}, { ...aPeer(3, "branch"), gateway: { type: "moon" } }, twin],
      [{ source: uidOf(2), service: "web", protocol: "tcp" }, { source: "me" }],
    ),
  );
  expect([...view.peers.values()].map(({ name }) => name)).toEqual(["gw1"]);
  expect(view.grants).toHaveLength(1);
  expect(view.issues.map(({ path, code }) => `${path} ${code}`)).toEqual([
    "gateway.domain.peers.1 invalid-item",
    "gateway.domain.peers.2 invalid-item",
    `gateway.domain.peers.${uidOf(2)} E_NAME_DUPLICATE`,
    "gateway.domain.grants.1 invalid-item",
  ]);
  expect(view.issues[0]?.message).toBe("gateway.domain.peers.1: uid is missing");
});

test("limits the report on invalid items", () => {
  fc.assert(
    fc.property(fc.array(fc.object({ maxDepth: 2 }), { maxLength: 200 }), (items) => {
      const { issues, peers } = readDomain(document(items.map((item) => JsonObject.parse(item))));
      expect(issues.length).toBeLessThanOrEqual(100);
      for (const issue of issues) Issue.parse(issue);
      expect(peers.size).toBe(0);
    }),
    { numRuns: 30 },
  );
});

test("parses a document once, and none if absent", () => {
  const read = domainReader();
  const body = document([aPeer(2, "gw1")]);
  expect(read(body)).toBe(read(body));
  expect(read(document([aPeer(2, "gw1")]))).not.toBe(read(body));
  expect(read(undefined)).toBeUndefined();
});
