import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { openStores } from "../../../../src/controller/stores.ts";
import { addNode, runController, temporaryDirectory } from "../../../support/control-plane/running-controller.ts";

const image = { id: "0d1c2b3a-4f5e-4d6c-8b7a-091827364554", displayName: "b", location: "images/b", os: "linux" };

test("images are kept by node, and go with it", async () => {
  const store = openStores(join(await temporaryDirectory(), "controller.db"));
  onTestFinished(() => store.close());
  const { images, nodes, sql } = store;
  for (const uid of ["n1", "n2"]) {
    sql.exec(`INSERT INTO nodes (uid, name, fqdn, domain, org, type, keys, auth, overlay, wireguard, created_at, speed_token, trail)
      VALUES ('${uid}', '${uid}', '${uid}', 'd', 'o', 'Node', '{}', '${uid}', '${uid}', '${uid}', 1, '${uid}', '{}')`);
  }
  images.put("n1", image);
  images.put("n1", { ...image, id: "other", displayName: "a", description: "first" });
  images.put("n2", { ...image, os: "win10" });
  images.put("n2", { ...image, os: "win11" });
  expect(images.ofNode("n1").map(({ displayName }) => displayName)).toEqual(["a", "b"]);
  expect(images.get("n1", "other")).toMatchObject({ description: "first" });
  expect(images.get("n2", image.id)).toEqual({ ...image, os: "win11" });
  expect(() => images.put("nobody", image)).toThrow(/FOREIGN KEY/);
  nodes.remove("n1");
  expect(images.ofNode("n1")).toEqual([]);
  images.remove("n2", "other");
  expect(images.ofNode("n2")).toHaveLength(1);
  images.remove("n2", image.id);
  expect(images.get("n2", image.id)).toBeUndefined();
});

test("what is done for a node is recorded with it, or neither", async () => {
  const controller = await runController();
  const { uid } = await addNode(controller, "one");
  expect(controller.nodes.recordChange(uid, "ann", "Image b added", () => 7)).toBe(7);
  const fail = (): never => {
    throw new Error("no");
  };
  expect(() => controller.nodes.recordChange(uid, "ann", "Image c added", fail)).toThrow("no");
  expect(() => controller.nodes.recordChange("nobody", "ann", "Image d added", fail)).toThrow("no node nobody");
  const { items } = controller.events.find({
    nodeIds: [uid],
    sort: { by: "timestamp", order: "desc" },
    limit: 100,
    offset: 0,
  });
  expect(items.filter(({ message }) => message.startsWith("Image"))).toMatchObject([
    { eventType: "Configuration Change", message: "Image b added", details: { user: "ann" } },
  ]);
});
