// Runs an upgrade on the directories of a test, in a process that can be killed, or traced: then once the tracer has attached.
import { readFileSync } from "node:fs";
import { waitForTracer } from "../wait-for-tracer.ts";
import { runUpgrade, UpgradeWork } from "./run-upgrade.ts";

const [file = "", traced] = process.argv.slice(2);
const work = UpgradeWork.parse(JSON.parse(readFileSync(file, "utf8")));
const ending = new AbortController();
process.once("SIGTERM", () => ending.abort(new Error("stopped by SIGTERM")));
if (traced === "traced") await waitForTracer();
process.exitCode = await runUpgrade(work, (line) => void process.stdout.write(`${line}\n`), ending.signal);
