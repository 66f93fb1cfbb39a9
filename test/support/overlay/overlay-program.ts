// The overlay alone, started as `holdfast` is: overlay-program overlay OPTION...
import { run } from "../../../src/overlay/main.ts";

process.exitCode = await run(process.argv.slice(3));
