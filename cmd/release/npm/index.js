'use strict';

// Where this package's files for this machine are.
const path = require('node:path');

const folder = path.join(__dirname, `linux-${process.arch}`);

module.exports = {
  // The command line: graft inspect, graft ab, graft run -- node program.js.
  binary: path.join(folder, 'bin', 'graft'),
  // What graft run has a program load.
  library: path.join(folder, 'lib', 'graft', 'libgraft.so'),
};
