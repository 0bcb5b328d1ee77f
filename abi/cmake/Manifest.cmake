# Copies a plugin.yaml into a finished plugin, for the processor that it was built for: cmake -DFROM=.. -DTO=.. -DARCH=.. -P Manifest.cmake
# Sources name amd64 in their variants.
file(READ "${FROM}" text)
string(REPLACE "arch: amd64" "arch: ${ARCH}" text "${text}")
file(WRITE "${TO}" "${text}")
