import { expect, test } from "vitest";
import { configShow } from "../../../../../src/agent/triggers/node/config-show.ts";
import { rollback } from "../../../../../src/agent/triggers/node/rollback.ts";
import { InputError } from "../../../../../src/errors.ts";
import type { RollbackRequest } from "../../../../../src/protocol/documents/reconcile.ts";
import { rig } from "../rig.ts";

test("rolls back the node's document unless another is named", async () => {
  const requested: RollbackRequest[] = [];
  const { run } = rig([
    rollback((request) => {
      requested.push(request);
      if (request.document === "cluster") throw new InputError("not-found", "this node has no cluster document");
      return Promise.resolve({ schema: 1, document: request.document, from: 2, to: 1 });
    }),
  ]);
  expect(await run("rollback", { body: {} })).toEqual({ body: { schema: 1, document: "node", from: 2, to: 1 } });
  expect(await run("rollback", { body: { document: "domain", plan: true } })).toMatchObject({ body: { from: 2 } });
  expect(requested).toEqual([
    { document: "node", plan: false },
    { document: "domain", plan: true },
  ]);
  expect(await run("rollback", { body: { document: "cluster" } })).toMatchObject({ error: { code: "not-found" } });
  expect(await run("rollback", { body: { document: "keys" } })).toMatchObject({ error: { code: "invalid-body" } });
});

test("shows the configuration completely or by section, without its secrets", async () => {
  const config = { snmp: { enabled: true, authPassphrase: "hunter2" }, core: { a: 1 } };
  const { run } = rig([configShow(() => config)]);
  const shown = { snmp: { enabled: true, authPassphrase: "" }, core: { a: 1 } };
  expect(await run("config-show", { body: {} })).toEqual({ body: shown });
  expect(await run("config-show", { body: { section: "snmp" } })).toEqual({ body: { snmp: shown.snmp } });
  expect(await run("config-show", { body: { section: "vpn" } })).toEqual({ body: {} });
  expect(await run("config-show", { body: { section: "nonsense" } })).toMatchObject({
    error: { code: "invalid-body" },
  });
});
