import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { ADMIN_POLICY, type Policy } from "../../../../src/controller/access/policies/policy.ts";
import { type AccessStore, sha256Hex } from "../../../../src/controller/access/store.ts";
import { openTestStore, type TestStore } from "../../../support/control-plane/test-store.ts";

const reader: Policy = {
  name: "reader",
  statements: [{ effect: "allow", actions: ["nodes::read"] }],
  resources: ["*"],
};

let whole: TestStore;
let store: AccessStore;

beforeEach(async () => {
  whole = await openTestStore();
  store = whole.access;
});

afterEach(() => whole.close());

const failsWith = (code: string, work: (access: AccessStore) => Promise<unknown>) =>
  expect(whole.transact(({ access }) => work(access))).rejects.toMatchObject({ code });

describe("API keys", () => {
  it("are found by the key itself and replaced by name", async () => {
    await store.putApiKey("admin", sha256Hex("first"), [ADMIN_POLICY]);
    expect(await store.findApiKey("first")).toEqual({ name: "admin", policies: [ADMIN_POLICY] });
    expect(await store.findApiKey(sha256Hex("first"))).toBeUndefined();
    await store.putApiKey("admin", sha256Hex("second"), [ADMIN_POLICY]);
    expect(await store.findApiKey("first")).toBeUndefined();
    expect((await store.findApiKey("second"))?.name).toBe("admin");
  });

  it("are not in the file", async () => {
    await store.putApiKey("admin", sha256Hex("a-secret-key"), []);
    expect(JSON.stringify(await whole.query("SELECT * FROM api_key"))).not.toContain("a-secret-key");
  });
});

describe("policies", () => {
  it("are created once, replaced and deleted", async () => {
    await store.createPolicy(reader);
    await failsWith("name-taken", (access) => access.createPolicy(reader));
    await store.replacePolicy({ ...reader, description: "reads" });
    const own = (await store.policies()).filter(({ name }) => !name.startsWith("builtin-"));
    expect(own).toEqual([{ ...reader, description: "reads" }]);
    await store.deletePolicy("reader");
    expect(await store.policy("reader")).toBeUndefined();
    await failsWith("not-found", (access) => access.deletePolicy("reader"));
    await failsWith("not-found", (access) => access.replacePolicy(reader));
  });

  it("leave their names, without effect, with whoever has them", async () => {
    await store.createPolicy(reader);
    await store.createServiceUser("bot", ["reader", "builtin-tg-monitor"], 1);
    const held = async () => (await store.policiesOf("bot", "service-user"))?.map(({ name }) => name);
    expect(await held()).toEqual(["reader", "builtin-tg-monitor"]);
    await store.deletePolicy("reader");
    expect((await store.serviceUser("bot"))?.policies).toEqual(["reader", "builtin-tg-monitor"]);
    expect(await held()).toEqual(["builtin-tg-monitor"]);
    expect((await store.grantOf("bot"))?.policies.map(({ name }) => name)).toEqual(["builtin-tg-monitor"]);
    expect(await store.policiesOf("bot", "api-key")).toBeUndefined();
  });
});

describe("service users", () => {
  it("have no identifier that cannot be stored", async () => {
    await store.createServiceUser("bot", [], 1);
    expect(await store.checkCredential("\0", "secret")).toBeUndefined();
    expect(await store.findServiceUser("bot", "a\0b")).toBeUndefined();
  });

  it("keep their policies as they were given", async () => {
    const bot = await store.createServiceUser("bot", ["z", "a", "z"], 7);
    expect(bot).toEqual({
      name: "bot",
      policies: ["z", "a", "z"],
      isActive: true,
      createdAt: 7,
      clientId: undefined,
      tokenCreatedAt: undefined,
    });
    expect(await store.serviceUsers()).toEqual([bot]);
    expect(await store.serviceUser("bot")).toEqual(bot);
    await failsWith("name-taken", (access) => access.createServiceUser("bot", [], 1));
  });

  it("have one credential at a time", async () => {
    await store.createPolicy(reader);
    await store.createServiceUser("bot", ["reader"], 1);
    const now = Date.now();
    const credential = (at: number) => ({
      clientId: `client-${at}`,
      secretSha256: sha256Hex(`secret-${at}`),
      now,
      overlapMs: 0,
    });
    await store.putCredential("bot", credential(1));
    expect(await store.checkCredential("client-1", "secret-1")).toBe("bot");
    expect(await store.checkCredential("client-1", "secret-2")).toBeUndefined();
    expect(await store.checkCredential("client-2", "secret-1")).toBeUndefined();
    expect(await store.findServiceUser("bot", "client-1")).toEqual({ name: "bot", policies: [reader] });
    await store.putCredential("bot", credential(2));
    expect(await store.findServiceUser("bot", "client-1")).toBeUndefined();
    expect(await store.checkCredential("client-1", "secret-1")).toBeUndefined();
    await failsWith("not-found", (access) => access.putCredential("nobody", credential(3)));
  });
});
