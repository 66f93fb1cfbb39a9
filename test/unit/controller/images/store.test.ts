import { expect, onTestFinished, test } from "vitest";
import { openTestStore } from "../../../support/control-plane/test-store.ts";
import { NEW_IDENTITY } from "../../../../src/controller/nodes/identity.ts";
import { eventLog } from "../../../../src/controller/events/service.ts";
import { RequestScope } from "../../../../src/controller/http/sources.ts";
import { Images } from "../../../../src/controller/images/service.ts";
import { systemClock } from "../../../../src/host/clock.ts";
import { nodeRecord } from "../../../support/control-plane/fleet-stage.ts";

const image = { id: "0d1c2b3a-4f5e-4d6c-8b7a-091827364554", displayName: "b", location: "images/b", os: "linux" };

async function storeWithNodes(...uids: readonly string[]) {
  const store = await openTestStore();
  onTestFinished(() => store.close());
  const { domain, org, type, keys, createdAt } = nodeRecord();
  const device = { vendor: "", model: "", mac: "", wan: "" };
  for (const uid of uids) {
    const thumbprints = { auth: uid, overlay: uid, wireguard: uid };
    const named = { uid, name: uid, fqdn: uid, domain, org, type, keys: keys.jwk, createdAt };
    await store.nodes.add({ ...named, thumbprints, device, trail: NEW_IDENTITY });
  }
  return store;
}

test("images are kept by node, and go with it", async () => {
  const { images, nodes } = await storeWithNodes("n1", "n2");
  await images.put("n1", image);
  await images.put("n1", { ...image, id: "other", displayName: "a", description: "first" });
  await images.put("n2", { ...image, os: "win10" });
  await images.put("n2", { ...image, os: "win11" });
  expect((await images.ofNode("n1")).map(({ displayName }) => displayName)).toEqual(["a", "b"]);
  expect(await images.get("n1", "other")).toMatchObject({ description: "first" });
  expect(await images.get("n2", image.id)).toEqual({ ...image, os: "win11" });
  await expect(images.put("nobody", image)).rejects.toThrow(/FOREIGN KEY/i);
  await nodes.remove("n1");
  expect(await images.ofNode("n1")).toEqual([]);
  await images.remove("n2", "other");
  expect(await images.ofNode("n2")).toHaveLength(1);
  await images.remove("n2", image.id);
  expect(await images.get("n2", image.id)).toBeUndefined();
});

test("a change of an image is recorded with it, or neither", async () => {
  const store = await storeWithNodes("n1");
  const events = eventLog(store, systemClock(), { org: "o", domain: "d" }, new RequestScope());
  const images = new Images({ store, events });
  await images.add("n1", image, "ann");
  await expect(images.add("n1", image, "ann")).rejects.toMatchObject({ code: "item-collision" });
  await expect(images.replace("n1", { ...image, id: "none" }, "ann")).rejects.toMatchObject({ code: "not-found" });
  await expect(images.remove("nobody", image.id, "ann")).rejects.toMatchObject({ code: "not-found" });
  const failing = new Images({ store, events: { change: () => Promise.reject(new Error("no")) } });
  await expect(failing.remove("n1", image.id, "ann")).rejects.toThrow("no");
  expect(await images.ofNode("n1")).toEqual([image]);
  const filter = { sort: { by: "timestamp", order: "asc" }, limit: 100, offset: 0 } as const;
  expect((await events.find(filter)).items).toMatchObject([
    { eventType: "Configuration Change", message: "Image b added", details: { user: "ann" }, nodeId: "n1" },
  ]);
});
