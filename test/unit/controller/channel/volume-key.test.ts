import { expect, test } from "vitest";
import { addNode, runController } from "../../../support/control-plane/running-controller.ts";

test("a node gets the keys of its own encrypted volumes, and no others", async () => {
  const controller = await runController();
  const [one, other] = [await addNode(controller, "one"), await addNode(controller, "other")];
  const volumes = [
    { name: "safe", encrypted: true },
    { name: "plain", encrypted: false },
  ];
  for (const { uid } of [one, other])
    await controller.config.setSection(uid, "exec", "test", () => ({ body: { volumes } }));
  const [mine, theirs] = [await one.connect(), await other.connect()];
  const { key } = await mine.peer.request("volume.key", { volume: "safe" });
  expect(Buffer.from(key, "base64url")).toHaveLength(32);
  expect(await mine.peer.request("volume.key", { volume: "safe" })).toEqual({ key });
  expect((await theirs.peer.request("volume.key", { volume: "safe" })).key).not.toBe(key);
  for (const volume of ["plain", "unknown", "constructor"]) {
    await expect(mine.peer.request("volume.key", { volume })).rejects.toMatchObject({ code: "not-found" });
  }
});
