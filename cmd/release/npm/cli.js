#!/usr/bin/env node
'use strict';

const { spawnSync } = require('node:child_process');
const { existsSync } = require('node:fs');
const { binary } = require('./index.js');

if (!existsSync(binary)) {
  console.error(`graft: found no binary for ${process.platform} on ${process.arch}, needed linux on x64 or arm64`);
  process.exit(1);
}
const { status, signal, error } = spawnSync(binary, process.argv.slice(2), { stdio: 'inherit' });
if (error) {
  console.error(`graft: ${binary}: ${error.message}`);
  process.exit(1);
}
if (signal) {
  process.kill(process.pid, signal);
}
process.exit(status);
