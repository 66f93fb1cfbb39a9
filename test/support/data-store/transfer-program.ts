// The transfer's program alone, started as `holdfast` is: transfer-program transfer
import { run } from "../../../src/transfer/main.ts";

process.exitCode = await run();
