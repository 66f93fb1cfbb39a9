import { beforeEach, describe, expect, it } from "vitest";
import { ADMIN_POLICY, type Policy } from "../../../../src/controller/access/policies/policy.ts";
import { type AccessStore, sha256Hex } from "../../../../src/controller/access/store.ts";
import type { Stores } from "../../../../src/controller/stores.ts";
import { memoryStores } from "../../../support/control-plane/memory-stores.ts";

const reader: Policy = {
  name: "reader",
  statements: [{ effect: "allow", actions: ["nodes::read"] }],
  resources: ["*"],
};

let sql: Stores["sql"];
let store: AccessStore;

beforeEach(() => {
  ({ sql, access: store } = memoryStores());
});

const failsWith = (code: string, work: () => unknown) => expect(work).toThrow(expect.objectContaining({ code }));

describe("API keys", () => {
  it("are found by the key itself and replaced by name", () => {
    store.putApiKey("admin", sha256Hex("first"), [ADMIN_POLICY]);
    expect(store.findApiKey("first")).toEqual({ name: "admin", policies: [ADMIN_POLICY] });
    expect(store.findApiKey(sha256Hex("first"))).toBeUndefined();
    store.putApiKey("admin", sha256Hex("second"), [ADMIN_POLICY]);
    expect(store.findApiKey("first")).toBeUndefined();
    expect(store.findApiKey("second")?.name).toBe("admin");
  });

  it("are not in the file", () => {
    store.putApiKey("admin", sha256Hex("a-secret-key"), []);
    expect(JSON.stringify(sql.prepare("SELECT * FROM api_key").all())).not.toContain("a-secret-key");
  });
});

describe("policies", () => {
  it("are created once, replaced and deleted", () => {
    store.createPolicy(reader);
    failsWith("name-taken", () => store.createPolicy(reader));
    store.replacePolicy({ ...reader, description: "reads" });
    expect(store.policies()).toEqual([{ ...reader, description: "reads" }]);
    store.deletePolicy("reader");
    expect(store.policy("reader")).toBeUndefined();
    failsWith("not-found", () => store.deletePolicy("reader"));
    failsWith("not-found", () => store.replacePolicy(reader));
  });

  it("stay while somebody has them", () => {
    store.createPolicy(reader);
    store.createServiceUser("bot", ["reader"], 1);
    failsWith("policy-in-use", () => store.deletePolicy("reader"));
    expect(store.policy("reader")).toEqual(reader);
  });
});

describe("service users", () => {
  it("are created whole or not at all", () => {
    store.createPolicy(reader);
    failsWith("not-found", () => store.createServiceUser("bot", ["reader", "absent"], 1));
    expect(store.serviceUsers()).toEqual([]);
    const bot = store.createServiceUser("bot", ["reader", "reader"], 7);
    expect(bot).toEqual({ name: "bot", policies: ["reader"], createdAt: 7, clientId: undefined });
    expect(store.serviceUsers()).toEqual([bot]);
    expect(store.serviceUser("bot")).toEqual(bot);
    failsWith("name-taken", () => store.createServiceUser("bot", [], 1));
  });

  it("have one credential at a time", () => {
    store.createPolicy(reader);
    store.createServiceUser("bot", ["reader"], 1);
    store.putCredential("bot", "client-1", sha256Hex("secret-1"));
    expect(store.checkCredential("client-1", "secret-1")).toBe("bot");
    expect(store.checkCredential("client-1", "secret-2")).toBeUndefined();
    expect(store.checkCredential("client-2", "secret-1")).toBeUndefined();
    expect(store.findServiceUser("bot", "client-1")).toEqual({ name: "bot", policies: [reader] });
    store.putCredential("bot", "client-2", sha256Hex("secret-2"));
    expect(store.findServiceUser("bot", "client-1")).toBeUndefined();
    expect(store.checkCredential("client-1", "secret-1")).toBeUndefined();
    failsWith("not-found", () => store.putCredential("nobody", "c", "s"));
  });
});
