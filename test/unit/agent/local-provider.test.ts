import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { localProvider } from "../../../src/agent/local-provider.ts";
import { DesiredDocuments } from "../../../src/agent/shadow/desired.ts";
import { hostFiles } from "../../../src/host/files.ts";
import { rootLogger } from "../../../src/host/log.ts";
import { nodeDocument, signDocument, signingKey, ISS, UID } from "../../support/signing.ts";
import { tempDir } from "../../support/temp-dir.ts";
import { rig } from "./triggers/rig.ts";

test("a floor that was reset makes its document due again", async () => {
  const directory = tempDir();
  mkdirSync(join(directory, "s/desired"), { recursive: true });
  const documents = await DesiredDocuments.load(hostFiles(directory), "/s");
  const key = await signingKey();
  const trust = { iss: ISS, uid: UID, keys: new Map([[key.kid, key.publicKey]]) };
  await documents.accept("node", await signDocument(key, "node", 4, nodeDocument()), trust, 1);
  const retried: string[] = [];
  const provider = localProvider({
    gather: () => {
      throw new Error("not asked for");
    },
    memory: rootLogger({ level: "silent", destination: { write: () => undefined } }).memory,
    dispatcher: rig([]).dispatcher,
    documents,
    retry: (name) => void retried.push(name),
    wake: () => undefined,
    register: () => Promise.reject(new Error("not asked for")),
  });
  expect(await provider.resetFloor("node")).toEqual({ name: "node", from: 4, to: 0 });
  expect(retried).toEqual(["node"]);
});
