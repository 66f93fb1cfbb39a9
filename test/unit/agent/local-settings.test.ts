import { existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { changeLocalSettings, readLocalSettings } from "../../../src/agent/local-settings.ts";
import { tempDir } from "../../support/temp-dir.ts";

function file(text?: string): string {
  const path = join(tempDir(), "etc/agent.json");
  if (text === undefined) return path;
  const bare = join(tempDir(), "agent.json");
  writeFileSync(bare, text);
  return bare;
}

it("creates the file and its directory, readable by its owner only", async () => {
  const path = file();
  expect(await changeLocalSettings(path, { proxy: "http://u:p@192.0.2.1:3128" })).toEqual(["proxy"]);
  expect(await readLocalSettings(path)).toEqual({ proxy: "http://u:p@192.0.2.1:3128" });
  expect(statSync(path).mode & 0o777).toBe(0o600);
});

it("keeps unknown keys, removes null ones, and keeps the previous copy beside it", async () => {
  const text = '{"fromTomorrow":1,"logLevel":"warn","noProxy":["a"]}';
  const path = file(text);
  expect(await changeLocalSettings(path, { logLevel: "debug", noProxy: null })).toEqual(["logLevel", "noProxy"]);
  expect(await readLocalSettings(path)).toEqual({ fromTomorrow: 1, logLevel: "debug" });
  expect(readFileSync(`${path}.previous`, "utf8")).toBe(text);
});

it("writes nothing when nothing changes, or when it only validates", async () => {
  const path = file('{"logLevel":"warn"}');
  expect(await changeLocalSettings(path, { logLevel: "warn" })).toEqual([]);
  expect(await changeLocalSettings(path, { logLevel: "info" }, { isDry: true })).toEqual(["logLevel"]);
  expect(readFileSync(path, "utf8")).toBe('{"logLevel":"warn"}');
  expect(existsSync(`${path}.previous`)).toBe(false);
});

it.each<[object, string]>([
  [{ logLevel: "loud" }, "logLevel"],
  [{ proxy: "https://x" }, "proxy: must be an http:// proxy address"],
  [{ dataStore: { maxTransfers: 99 } }, "dataStore.maxTransfers"],
  [{ dataStore: { colour: 1 } }, "colour"],
  [{ unknownHere: 1 }, "unknownHere: is no setting"],
])("refuses what the agent would refuse: %j", async (changes, field) => {
  const path = file('{"fromTomorrow":1}');
  await expect(changeLocalSettings(path, { ...changes })).rejects.toMatchObject({
    code: "bad-settings",
    message: expect.stringContaining(field) as string,
  });
  expect(readFileSync(path, "utf8")).toBe('{"fromTomorrow":1}');
});

it("does not repeat the contents of an unreadable file", async () => {
  const path = file('{"proxy":"http://u:hunter2@x"');
  const failed = readLocalSettings(path);
  await expect(failed).rejects.toMatchObject({ code: "bad-settings" });
  await expect(failed).rejects.not.toMatchObject({ message: expect.stringContaining("hunter2") as string });
});
