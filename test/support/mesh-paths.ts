import type { Lab } from "../../scripts/labs/lab.ts";
import { connectControl } from "../../src/host/overlay-control.ts";
