// Package cudakit gives tests the software GPU of softdevices/softcuda: package softlib builds the library, and this one
// says where a program finds it in place of the driver's libcuda.
//
//	Owns:     nothing: softlib has the built library
//	May call: internal/testkit/softlib
//	Never:    be imported by anything but tests
package cudakit
