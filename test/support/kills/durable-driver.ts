// Runs one durable operation on a state directory, once the tracer has attached.
import { readFileSync } from "node:fs";
import { z } from "zod";
import { DesiredDocuments } from "../../../src/agent/shadow/desired.ts";
import { hostFiles } from "../../../src/host/files/files.ts";
import { keySetOf } from "../../../src/protocol/channel/keys-chain.ts";
import { Ed25519PublicKey } from "../../../src/protocol/values/keys.ts";
import { deliver } from "../control-plane/counted-trigger.ts";
import { waitForTracer } from "../wait-for-tracer.ts";
import { ISS, UID } from "../control-plane/signing.ts";

const Work = z.discriminatedUnion("do", [
  z.object({ do: z.literal("save"), stateDir: z.string(), jws: z.string(), key: Ed25519PublicKey }),
  z.object({ do: z.literal("rollback"), stateDir: z.string() }),
  z.object({ do: z.literal("trigger"), stateDir: z.string(), id: z.string(), effectFile: z.string() }),
]);

const work = Work.parse(JSON.parse(readFileSync(process.argv[2] ?? "", "utf8")));
if (work.do === "trigger") {
  await waitForTracer();
  await deliver(work.stateDir, work.id, work.effectFile);
} else if (work.do === "rollback") {
  const documents = await DesiredDocuments.load(hostFiles(), work.stateDir);
  await waitForTracer();
  await documents.rollBack("node", 4);
} else {
  const documents = await DesiredDocuments.load(hostFiles(), work.stateDir);
  const trust = { iss: ISS, uid: UID, keys: await keySetOf([work.key]) };
  await waitForTracer();
  await documents.accept("node", work.jws, trust, 4);
}
