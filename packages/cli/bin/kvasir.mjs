#!/usr/bin/env node
/** The `kvasir` command for a shell, on any Node from 18 on: the bootstrap brings what is missing. */

process.argv.splice(2, 0, "kvasir");
await import("../../../scripts/bootstrap.mjs");
