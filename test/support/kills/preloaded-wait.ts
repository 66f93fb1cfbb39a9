import { waitForTracer } from "../wait-for-tracer.ts";

await waitForTracer();
